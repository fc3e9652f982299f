"""`leveret doctor`: looks at everything a daemon needs, changes nothing, and says what to do about what is wrong."""
