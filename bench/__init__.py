"""How fast is it, beside what others offer? Run with `make bench`."""
