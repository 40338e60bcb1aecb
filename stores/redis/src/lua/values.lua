-- What stands under the registered keys KEYS[…]; something that is no text is as good as a strange one.
local found = {}
for i = 1, #KEYS do
  local value = redis.pcall('GET', KEYS[i])
  if type(value) == 'table' then value = value.err end
  found[i] = value
end
return found
