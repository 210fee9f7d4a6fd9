-- Returns the epoch: a mark in the data, and the server's run id, because a restart may have lost the latest writes.
-- KEYS: the mark   ARGV: a new mark
local run_id = string.match(redis.call("INFO", "server"), "run_id:(%w+)")
local mark = redis.call("GET", KEYS[1])
if not mark then -- written only when it is missing, so that a full Redis can still answer
  redis.call("SET", KEYS[1], ARGV[1])
  mark = ARGV[1]
end
return mark .. "." .. (run_id or "")
