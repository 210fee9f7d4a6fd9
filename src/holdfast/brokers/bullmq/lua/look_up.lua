-- Returns for each job: 0 absent, 1 open, 2 ended by us, or how another system's worker ended it.
-- KEYS: completed failed   ARGV: prefix, the field that marks jobs that we ended, then ids
local answers = {}
for i = 3, #ARGV do
  local id = ARGV[i]
  local key, state, field = ARGV[1] .. id, "completed", "returnvalue"
  local at = redis.call("ZSCORE", KEYS[1], id)
  if not at then
    state, field, at = "failed", "failedReason", redis.call("ZSCORE", KEYS[2], id)
  end
  if not at then
    answers[#answers + 1] = redis.call("EXISTS", key)
  elseif redis.call("HEXISTS", key, ARGV[2]) == 1 then
    answers[#answers + 1] = 2
  else
    answers[#answers + 1] = {id, state, redis.call("HGET", key, field) or "", at}
  end
end
return answers
