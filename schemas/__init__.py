"""The wire contract as frozen pydantic models: requests, replies, and the AsyncAPI document made from them."""
