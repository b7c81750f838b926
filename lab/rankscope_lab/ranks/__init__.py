"""What encoders, layers and tokenizers do to rank."""
