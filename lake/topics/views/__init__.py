"""Tables of silver that follow from other tables of silver: declared views, and generated ones."""
