"""The documents workload : text from PDFs, and transcripts of audio and video."""
