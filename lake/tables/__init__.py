"""Delta tables in a folder or a bucket: opening, appending, replacing and listing them."""
