"""Why a program failed, read from what it printed. Text in, facts out; standard library only, Python 3.9 and newer."""
