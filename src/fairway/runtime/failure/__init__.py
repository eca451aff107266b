"""Find out why a program failed from its output. Pure text processing; standard library only, Python 3.9 and newer."""
