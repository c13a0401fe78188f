"""Both processes of the program that examples/coming_from.md shows whole print the sum.

add_up_test.py PROGRAM"""

import socket
import subprocess
import sys

with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    address = "%s:%d" % free.getsockname()
ranks = [subprocess.Popen([sys.argv[1], str(r), address], stdout=subprocess.PIPE, text=True) for r in range(2)]
try:
    said = [(each.communicate(timeout=30)[0], each.returncode) for each in ranks]
finally:
    for each in ranks:
        each.kill()
print(said)
sys.exit(said != [("3 3 3 3\n", 0)] * 2)
