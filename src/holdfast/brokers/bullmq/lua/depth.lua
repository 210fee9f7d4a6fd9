-- KEYS: wait paused prioritized delayed active meta
return {
  redis.call("LLEN", KEYS[1]) + redis.call("LLEN", KEYS[2]) + redis.call("ZCARD", KEYS[3]),
  redis.call("ZCARD", KEYS[4]),
  redis.call("LLEN", KEYS[5]),
  redis.call("HEXISTS", KEYS[6], "paused"),
}
