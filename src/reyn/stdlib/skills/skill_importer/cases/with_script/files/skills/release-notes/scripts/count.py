import sys

sys.stdout.write(str(len(sys.stdin.readlines())))
