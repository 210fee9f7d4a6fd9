"""The documents workload (seed 003): text from PDFs, and transcripts of audio and video."""
