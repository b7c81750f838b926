"""From linear regression to a transformer: components, and a vector-quantised tokenizer."""
