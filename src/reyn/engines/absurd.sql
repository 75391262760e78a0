-- The triggers and functions with which a PostgreSQL journal uses Absurd, in the schema of the journal, {schema}.
-- Version 1: a change needs another name of the trigger.

CREATE OR REPLACE FUNCTION {schema}.absurd_level(priority bigint) RETURNS int LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN priority >= 100 THEN 1 WHEN priority > 0 THEN 2 WHEN priority = 0 THEN 3
        WHEN priority > -100 THEN 4 ELSE 5 END
$$;

-- Absurd has no priorities, so each of five levels has a queue of its own. A name has at most 57 bytes.
CREATE OR REPLACE FUNCTION {schema}.absurd_queue(queue text, level int) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN octet_length({schema_text} || queue) <= 54 THEN {schema_text} || '.' || queue
        ELSE md5({schema_text} || '.' || queue) END || '.' || level
$$;

CREATE OR REPLACE FUNCTION {schema}.absurd_spawn(name text, run text, wake bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    params jsonb := jsonb_build_object('run', run, 'wake', wake);
    found record;
BEGIN
    SELECT * INTO found FROM absurd.spawn_task(
        name, 'drive', params, jsonb_build_object('idempotency_key', run || ':' || wake));
    -- A finished task deletes its wake. If there is one, the task was another one's, before a backup was restored, or
    -- was cancelled in Absurd.
    IF NOT found.created AND EXISTS (SELECT FROM absurd.get_task_result(name, found.task_id)
            WHERE state IN ('completed', 'failed', 'cancelled')) THEN
        PERFORM absurd.spawn_task(name, 'drive', params);
    END IF;
END $$;

-- A wake becomes a task in the transaction that stores it. An append never fails because of Absurd: workers hand over
-- what is left.
CREATE OR REPLACE FUNCTION {schema}.absurd_wake() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    now bigint := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
    name text := {schema}.absurd_queue(NEW.queue, {schema}.absurd_level(NEW.priority));
BEGIN
    IF NEW.due > now THEN
        NEW.held_until := NEW.due;
    ELSIF EXISTS (SELECT FROM absurd.queues WHERE queue_name = name) THEN
        PERFORM {schema}.absurd_spawn(name, NEW.run_id, NEW.seq);
        NEW.held_until := now + 3600000000;
    END IF;
    RETURN NEW;
EXCEPTION WHEN OTHERS THEN
    RETURN NEW;
END $$;

-- Hand over the wakes that are due and were not, or were an hour ago: Absurd may have lost them.
CREATE OR REPLACE FUNCTION {schema}.absurd_relay(served text[], quantity int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    now bigint := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
    one record;
BEGIN
    FOR one IN
        SELECT run_id, seq, {schema}.absurd_queue(queue, {schema}.absurd_level(priority)) AS name FROM {schema}.wakes
        WHERE queue = ANY(served) AND held_until <= now AND due <= now
        ORDER BY priority DESC, seq LIMIT quantity FOR UPDATE SKIP LOCKED
    LOOP
        IF NOT EXISTS (SELECT FROM absurd.queues WHERE queue_name = one.name) THEN
            PERFORM absurd.create_queue(one.name);
        END IF;
        PERFORM {schema}.absurd_spawn(one.name, one.run_id, one.seq);
        UPDATE {schema}.wakes SET held_until = now + 3600000000 WHERE seq = one.seq;
    END LOOP;
END $$;

CREATE OR REPLACE FUNCTION {schema}.absurd_claim(served text[], worker text, lease int, quantity int)
RETURNS TABLE (name text, task uuid, run text, wake bigint) LANGUAGE plpgsql AS $$
DECLARE
    got int;
BEGIN
    FOR name IN
        SELECT queue_name FROM generate_series(1, 5) AS level CROSS JOIN unnest(served) AS queue
        JOIN absurd.queues ON queue_name = {schema}.absurd_queue(queue, level) ORDER BY level
    LOOP
        RETURN QUERY SELECT absurd_claim.name, c.run_id, c.params->>'run', (c.params->>'wake')::bigint
            FROM absurd.claim_task(name, worker, lease, quantity) AS c;
        GET DIAGNOSTICS got = ROW_COUNT;
        quantity := quantity - got;
        EXIT WHEN quantity <= 0;
    END LOOP;
END $$;

CREATE OR REPLACE TRIGGER absurd_1 BEFORE INSERT ON {schema}.wakes
FOR EACH ROW EXECUTE FUNCTION {schema}.absurd_wake();
UPDATE {schema}.wakes SET held_until = due;
