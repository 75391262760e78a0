from reyn.cli import main

main()
