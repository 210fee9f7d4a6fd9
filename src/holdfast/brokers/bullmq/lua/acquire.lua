-- Gives permits. A permit is a member whose score is the instant at which it is free, in microseconds. While a permit
-- is held, the member is its name. While it rests, the member has another name, so that nobody can release it twice.
-- KEYS: permits   ARGV: most, per, hold (microseconds), then a new name for each wanted permit
local permits, now = KEYS[1], now_us()
local most, per, hold = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
redis.call("ZREMRANGEBYSCORE", permits, "-inf", digits(now))
local out, given = redis.call("ZCARD", permits), {}
for i = 4, #ARGV do
  local name = ARGV[i]
  if redis.call("ZSCORE", permits, name) then -- the request is repeated, because the reply was lost
    given[#given + 1] = name
  elseif out < most then
    -- Plus 1: the clock cuts off the part of its microsecond that has passed.
    redis.call("ZADD", permits, digits(now + hold + per + 1), name)
    out = out + 1
    given[#given + 1] = name
  end
end
if #given > 0 then expire_with_last_member(permits, now) end
if out < most then return {given, 0} end
-- A holder may release its permit right now: then the permit is free after its rest (per). That is the soonest, unless
-- a permit of the set is free even earlier.
local first = redis.call("ZRANGE", permits, out - most, out - most, "WITHSCORES")
return {given, math.min(per + 1, (tonumber(first[2]) or math.huge) - now)}
