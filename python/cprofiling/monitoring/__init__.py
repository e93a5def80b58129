"""Monitor running programs by live files, top, gRPC and exporters."""
