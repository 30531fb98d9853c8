"""`lakehouse forget`: finds a person, takes it out of every layer, and verifies the result."""
