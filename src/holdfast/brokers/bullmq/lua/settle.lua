-- Settles a batch of deliveries. BullMQ's scripts skip a delivery whose lock is gone or has another token.
-- A job that we end is marked as ours, in its hash where it stays and by the span of its events. So nobody takes it for
-- the work of another system's worker.
-- KEYS: wait active prioritized events stalled limiter delayed paused meta pc marker completed failed
--       metrics:completed metrics:failed, the spans of events that we wrote
-- ARGV: prefix, the field that marks jobs that we ended, then for each job: kind, id, token, value, delay,
--       packed fields, packed options, new data ("" for none)
local prefix, mark, answers = ARGV[1], ARGV[2], {}
local now = now_text()
local K = KEYS
local function end_of_events(command, from, to)
  -- A user without the right to read streams can still settle. Then the work of others is found in the job hashes.
  local event = redis.pcall(command, K[4], from, to, "COUNT", 1)[1]
  return event and event[1] or "0-0"
end
local last_event = end_of_events("XREVRANGE", "+", "-")
for i = 3, #ARGV, 8 do
  local kind, id, token, value = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
  local delay, fields, opts, data = ARGV[i + 4], ARGV[i + 5], ARGV[i + 6], ARGV[i + 7]
  local key, answer = prefix .. id, nil
  if kind == "completed" then
    answer = moveToFinished(
      {K[1], K[2], K[3], K[4], K[5], K[6], K[7], K[8], K[9], K[10], K[12], key, K[14], K[11]},
      {id, now, "returnvalue", value, "completed", "", prefix, opts, fields})
  elseif kind == "failed" then
    answer = moveToFinished(
      {K[1], K[2], K[3], K[4], K[5], K[6], K[7], K[8], K[9], K[10], K[13], key, K[15], K[11]},
      {id, now, "failedReason", value, "failed", "", prefix, opts, fields})
  elseif kind == "retry" then
    answer = retryJob(
      {K[2], K[1], K[8], key, K[9], K[4], K[7], K[3], K[10], K[11], K[5]}, {prefix, now, value, id, token, fields})
  elseif kind == "wait" then
    answer = moveJobFromActiveToWait({K[2], K[1], K[5], K[8], K[9], K[6], K[3], K[11], K[4]}, {id, token, key})
    if answer >= 0 and redis.call("HEXISTS", K[9], "paused") == 0 then
      redis.call("ZADD", K[11], 0, "0") -- BullMQ's script wakes no worker for a job with a priority
    end
  else -- "delayed", or "later", which does not count an attempt
    answer = moveToDelayed(
      {K[11], K[2], K[3], K[7], key, K[4], K[9], K[5], K[1], K[6], K[10]},
      {prefix, now, id, token, delay, kind == "later" and "1" or "0", fields, "0"})
  end
  -- A finished job may be deleted by now. Writing a field would create a part of its hash again.
  local ended = kind == "completed" or kind == "failed"
  if (ended or data ~= "") and type(answer) == "number" and answer >= 0 and redis.call("EXISTS", key) == 1 then
    if data ~= "" then redis.call("HSET", key, "data", data) end
    if ended then redis.call("HSET", key, mark, "1") end
  end
  answers[#answers + 1] = answer
end
local span_end = end_of_events("XREVRANGE", "+", "-")
if span_end ~= last_event then
  local own = K[16]
  redis.call("ZADD", own, string.match(span_end, "^%d+"), last_event .. " " .. span_end)
  redis.call("ZREMRANGEBYSCORE", own, "-inf", "(" .. string.match(end_of_events("XRANGE", "-", "+"), "^%d+"))
end
return answers
