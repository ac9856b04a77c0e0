"""Runs a command on a pseudo-terminal and types the lines of standard input, each once the line
before has been answered. Prints what the command wrote, and whether it came in many writes. (A
terminal may join some of them, so that fewer than there were can be seen.)
Usage: terminal.py COMMAND... <LINES"""
import os
import pty
import subprocess
import sys
import termios

master, slave = pty.openpty()
mode = termios.tcgetattr(slave)
mode[1] &= ~termios.OPOST
mode[3] &= ~termios.ECHO
termios.tcsetattr(slave, termios.TCSANOW, mode)
child = subprocess.Popen(sys.argv[1:], stdin=slave, stdout=slave)
os.close(slave)
written, writes = b"", 0


def read():
    """The next piece; False at the end."""
    global written, writes
    try:
        piece = os.read(master, 65536)
    except OSError:
        return False
    written += piece
    writes += 1
    return bool(piece)


for line in sys.stdin.buffer:
    os.write(master, line)
    lines = written.count(b"\n")
    while written.count(b"\n") == lines and read():
        pass
os.write(master, b"\x04")
while read():
    pass
sys.stdout.buffer.write(written + (b"many writes\n" if writes > 4 else b"one write\n"))
sys.exit(child.wait())
