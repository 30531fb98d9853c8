"""Messages in and out of topics, without a stream: publishing, generating, sending and showing."""
