"""`lakehouse forget`: find a person, erase the person from every layer, and verify the result."""
