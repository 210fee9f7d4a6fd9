-- Gives each job a place; places have even distances in time. Returns how long each job has to wait for its place.
-- KEYS: places   ARGV: the distance of two places, how long unused places are kept (microseconds), then job ids
local places, now = KEYS[1], now_us()
local distance, keep = tonumber(ARGV[1]), tonumber(ARGV[2])
redis.call("ZREMRANGEBYSCORE", places, "-inf", digits(now - keep))
local NEXT = ":next" -- no job has such an id
local free = math.max(now, tonumber(redis.call("ZSCORE", places, NEXT) or 0)) -- unused places are not saved up
local waits = {}
for i = 3, #ARGV do
  local at = redis.call("ZSCORE", places, ARGV[i])
  at = at and tonumber(at)
  if not at then
    at = free
    free = free + distance
  end
  if at <= now then
    redis.call("ZREM", places, ARGV[i])
  else
    redis.call("ZADD", places, digits(at), ARGV[i])
  end
  waits[#waits + 1] = math.max(0, at - now)
end
redis.call("ZADD", places, digits(free), NEXT)
redis.call("PEXPIRE", places, digits(math.ceil((free - now + keep) / 1000)))
return waits
