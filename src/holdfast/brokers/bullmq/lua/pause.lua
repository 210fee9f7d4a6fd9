-- Pauses or resumes a queue, and keeps the reason beside BullMQ's own flag.
-- KEYS: those of BullMQ's pause   ARGV: "paused" or "resumed", the field for the reason, and the reason ("" for none)
local meta, field, reason = KEYS[3], ARGV[2], ARGV[3]
if ARGV[1] == "resumed" or redis.call("HEXISTS", meta, "paused") == 0 then
  redis.call("HDEL", meta, field)
end
-- The first reason stays: later reasons are often its consequences.
if reason ~= "" and redis.call("HEXISTS", meta, field) == 0 then
  redis.call("HSET", meta, field, reason)
end
return pause(KEYS, {ARGV[1], "1"})
