-- Makes active jobs without a lock ready again. BullMQ's check needs two passes: one to mark, one to move.
-- KEYS: those of BullMQ's moveStalledJobsToWait   ARGV: prefix
local stalled = false
for _, id in ipairs(redis.call("LRANGE", KEYS[3], 0, -1)) do
  if redis.call("EXISTS", ARGV[1] .. id .. ":lock") == 0 then
    stalled = true
    break
  end
end
if not stalled then return 0 end
local moved, now = 0, now_text()
for pass = 1, 2 do
  redis.call("DEL", KEYS[4])
  -- No limit of stalls: the ledger counts how often a job has lost its worker.
  moved = moved + #moveStalledJobsToWait(KEYS, {"1000000000", ARGV[1], now, "1000"})
end
return moved
