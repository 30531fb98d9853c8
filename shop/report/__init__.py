"""The shop's part of `lakehouse report`. `shop/application.py` lists what is shown."""
