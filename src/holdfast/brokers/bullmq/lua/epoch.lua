-- The mark of this memory, and of the process that holds it: a restart may have lost the latest writes.
-- KEYS: the mark   ARGV: a fresh one
local run_id = string.match(redis.call("INFO", "server"), "run_id:(%w+)")
local mark = redis.call("GET", KEYS[1])
if not mark then -- written only then, so that a Redis that is full still tells who it is
  redis.call("SET", KEYS[1], ARGV[1])
  mark = ARGV[1]
end
return mark .. "." .. (run_id or "")
