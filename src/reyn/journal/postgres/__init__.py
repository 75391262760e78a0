"""The journal in a PostgreSQL database, which processes of many machines share. Needs the extra `postgres`.

`PostgresJournal` is imported from its module, so that nothing here imports psycopg.
"""
