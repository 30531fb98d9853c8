"""The live page: messages of a topic, and changes of a table, as they come."""
