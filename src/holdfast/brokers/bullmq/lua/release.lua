-- Releases permits: each rests before it is free. A name that holds no permit is skipped.
-- KEYS: permits   ARGV: per (microseconds), then names
local permits, now, per = KEYS[1], now_us(), tonumber(ARGV[1])
redis.call("ZREMRANGEBYSCORE", permits, "-inf", digits(now))
for i = 2, #ARGV do
  if redis.call("ZREM", permits, ARGV[i]) == 1 then
    redis.call("ZADD", permits, digits(now + per + 1), "released " .. ARGV[i])
  end
end
expire_with_last_member(permits, now)
return 0
