"""What an agent knows: who hears whom, what is said, and what a receiver makes of it."""
