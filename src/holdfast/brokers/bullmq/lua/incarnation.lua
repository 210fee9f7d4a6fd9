-- The mark of this memory, and of the process that holds it: a restart may have lost the latest writes.
-- KEYS: the mark   ARGV: a fresh one
redis.call("SET", KEYS[1], ARGV[1], "NX")
local run_id = string.match(redis.call("INFO", "server"), "run_id:(%w+)")
return redis.call("GET", KEYS[1]) .. "." .. (run_id or "")
