import sys

print(len(sys.stdin.readlines()))
