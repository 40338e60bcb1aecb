-- Reads the records of all nodes, and `meta`: for each its name, version and value.
--
-- The names of nodes are in a set of their own. Writers keep it up to date, except those of an older version: the index
-- has what these wrote since.
local upto = noded()
if upto < revision then
  for _, name in ipairs(redis.call('ZRANGEBYSCORE', INDEX, '(' .. digits(upto), '+inf')) do
    if is_node(name) then redis.call('ZADD', NODES, '0', name) end
  end
  redis.call('ZADD', NODES, digits(revision), UPTO)
end
local found = {}
local function add(name)
  local version, value = fetch(PREFIX .. name)
  if version then
    for _, part in ipairs({name, version, value}) do found[#found + 1] = part end
  end
  return version
end
for _, name in ipairs(redis.call('ZRANGE', NODES, 0, -1)) do
  if name ~= UPTO and not add(name) then redis.call('ZREM', NODES, name) end
end
add('meta')
return {'ok', generation, digits(revision), found}
