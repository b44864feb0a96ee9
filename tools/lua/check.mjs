// Formats Lua with StyLua, and names what a script reads or sets without having declared it.
//
// Reads { files: { path: text }, scripts: { name: text } } from its input: the files as they stand, and the scripts as
// a server gets them. Writes { formatted: { path: text }, problems: [text] }.
import { CollapseSimpleStatement, Config, formatCode, IndentType, OutputVerification, QuoteStyle } from '@johnnymorganz/stylua'
import { parse } from 'luaparse'
import { readFileSync } from 'node:fs'

const GIVEN = new Set(['KEYS', 'ARGV', 'redis', 'cjson', 'cmsgpack', 'struct', 'math', 'string', 'table', 'ipairs',
  'next', 'pairs', 'pcall', 'select', 'tonumber', 'tostring', 'type', 'unpack'])

function style() {
  const config = Config.new()
  config.column_width = 120
  config.indent_type = IndentType.Spaces
  config.indent_width = 2
  config.quote_style = QuoteStyle.AutoPreferSingle
  config.collapse_simple_statement = CollapseSimpleStatement.Always
  return config
}

function undeclared(name, text) {
  const found = parse(text, { scope: true, locations: true, luaVersion: '5.1' }).globals
  return found.filter((each) => !GIVEN.has(each.name)).map((each) => {
    const line = text.split('\n')[each.loc.start.line - 1].trim()
    return `${name}: ${each.name} is declared nowhere: ${line}`
  })
}

// Locals of a file that nothing reads: each name that is declared stands in some file once more.
function unused(files) {
  const count = new Map()
  const declared = []
  for (const [path, text] of Object.entries(files)) {
    const onCreateNode = (node) => {
      if (node.type === 'Identifier') count.set(node.name, (count.get(node.name) ?? 0) + 1)
      const local = node.type === 'LocalStatement' ? node.variables : node.type === 'FunctionDeclaration' && node.isLocal
        ? [node.identifier] : []
      for (const { name } of local) if (name !== '_') declared.push([path, name])
    }
    parse(text, { luaVersion: '5.1', onCreateNode })
  }
  return declared.filter(([, name]) => count.get(name) === 1).map(([path, name]) => `${path}: nothing reads ${name}`)
}

// The answer, or, where the text is not Lua, why.
function attempt(name, of) {
  try {
    return of()
  } catch (failure) {
    problems.push(`${name}: ${failure.message ?? failure}`)
    return []
  }
}

const { files, scripts } = JSON.parse(readFileSync(0, 'utf8'))
const problems = []
const formatted = Object.fromEntries(Object.entries(files).map(([path, text]) => attempt(
  path, () => [path, formatCode(text, style(), undefined, OutputVerification.Full)])).filter((each) => each.length))
if (!problems.length) {
  problems.push(...Object.entries(scripts).flatMap(([name, text]) => undeclared(name, text)), ...unused(files))
}
process.stdout.write(JSON.stringify({ formatted, problems }))
