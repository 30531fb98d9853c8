"""The tables of silver, and the columns that its steps add to decoded rows."""
