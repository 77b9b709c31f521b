"""Cost specs: what a client may ask, judged, estimated and built."""
