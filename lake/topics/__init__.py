"""The topic file, which declares topics and the meaning of their messages."""
