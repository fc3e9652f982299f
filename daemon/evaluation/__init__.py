"""`leveret eval`: labelled cases over the bus, and what the answers say about quality and speed."""
