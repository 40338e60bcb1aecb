-- The values of the registered keys KEYS[…]; a key that is not a string counts as written by another program.
local found = {}
for i = 1, #KEYS do
  local value = redis.pcall('GET', KEYS[i])
  if type(value) == 'table' then value = value.err end
  found[i] = value
end
return found
