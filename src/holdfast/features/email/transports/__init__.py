"""Transports for mail: a folder, SMTP, or Amazon SES. Each needs its own library; import the one you use."""
