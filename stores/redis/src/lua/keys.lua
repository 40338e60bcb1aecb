-- All registered keys that are alive, with their values. KEYS[1] <namespace>:keys
local prefix = string.sub(KEYS[1], 1, -5)
local found = {}
for _, key in ipairs(redis.call('SMEMBERS', KEYS[1])) do
  local value = redis.call('GET', prefix .. 'key:' .. key)
  if value then
    found[#found + 1] = key
    found[#found + 1] = value
  else
    redis.call('SREM', KEYS[1], key)
  end
end
return found
