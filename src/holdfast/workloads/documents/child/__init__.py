"""What runs in a process of its own, one for each attempt. Only here are the heavy libraries imported."""
