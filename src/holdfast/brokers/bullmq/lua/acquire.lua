-- Gives turns. One is a member with the instant at which it comes free, in microseconds: while it is held under its
-- name, and until it has rested under another, so that nobody can release it twice.
-- KEYS: turns   ARGV: most, per, hold (microseconds), then a fresh name for each turn that is wanted
local turns, now = KEYS[1], now_us()
local most, per, hold = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
redis.call("ZREMRANGEBYSCORE", turns, "-inf", digits(now))
local out, given = redis.call("ZCARD", turns), {}
for i = 4, #ARGV do
  local name = ARGV[i]
  if redis.call("ZSCORE", turns, name) then -- we are asked again, because our answer was lost
    given[#given + 1] = name
  elseif out < most then
    -- One more: an instant is written without the part of its microsecond that was over.
    redis.call("ZADD", turns, digits(now + hold + per + 1), name)
    out = out + 1
    given[#given + 1] = name
  end
end
if #given > 0 then expire_with_the_last(turns, now) end
if out < most then return {given, 0} end
-- Whoever holds one may release it now, so none may come free sooner than that, or than the first that must.
local first = redis.call("ZRANGE", turns, out - most, out - most, "WITHSCORES")
return {given, math.min(per + 1, (tonumber(first[2]) or math.huge) - now)}
