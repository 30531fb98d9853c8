"""The code behind the commands that publish to, inspect, save, restore and reset a lakehouse."""
