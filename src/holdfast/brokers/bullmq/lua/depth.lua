-- Counts the jobs of a queue: ready, delayed, active; and returns whether it is paused, and why.
-- KEYS: wait paused prioritized delayed active meta   ARGV: the field for the reason of a pause
local paused = redis.call("HEXISTS", KEYS[6], "paused")
return {
  redis.call("LLEN", KEYS[1]) + redis.call("LLEN", KEYS[2]) + redis.call("ZCARD", KEYS[3]),
  redis.call("ZCARD", KEYS[4]),
  redis.call("LLEN", KEYS[5]),
  paused,
  paused == 1 and redis.call("HGET", KEYS[6], ARGV[1]),
}
