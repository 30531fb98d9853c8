"""The code behind the commands that plan, inspect, save, restore and reset a lakehouse."""
