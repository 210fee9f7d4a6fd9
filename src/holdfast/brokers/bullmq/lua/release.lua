-- Takes turns back: each rests for a while before it is free. One that is not held under its name is passed over.
-- KEYS: turns   ARGV: per (microseconds), then names
local turns, now, per = KEYS[1], now_us(), tonumber(ARGV[1])
redis.call("ZREMRANGEBYSCORE", turns, "-inf", digits(now))
for i = 2, #ARGV do
  if redis.call("ZREM", turns, ARGV[i]) == 1 then
    redis.call("ZADD", turns, digits(now + per + 1), "released " .. ARGV[i])
  end
end
expire_with_the_last(turns, now)
return 0
