"""Messages to rows: payloads, schemas, decoding, masking, and what a batch holds."""
