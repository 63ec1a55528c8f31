//! No input makes the macros panic: kernels with tokens dropped, doubled, swapped and put in.
//! A panic of a macro would be an error without a place.

use crate::expand;
use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

const ROUNDS: usize = 4000;

const SETTINGS: &str = "grid = (cdiv(M, BM), H / 2), formats(W = list, KV = crate::kv), \
    targets(sm90a, cpu), variants(cpu: BM = [4, 8], (BN, WARPS) = [(1, 2), (3, 4)]; gpu: BM = [16]), \
    require(BM * 2 <= 64 && BM > 1), class = exact";

const KERNEL: &str = r#"
    /// Says what it does.
    #[cfg(test)]
    pub(crate) fn kernel<'a, W: Packed, KV: Stored, const N: usize>(
        x: &In<f32, {[M, K + 2 + D]}>, w: &In<W, {[N, K]}>, eps: f32, mut n: &mut InOut<KV, {[1]}>,
        (a, b): usize, y: &mut Out<f32, {[M, N]}>,
    ) -> f32 where W: Sized {
        let (m, mut acc) = (program_id(0) * BM, zeros::<f32, 2>([BM, 16]));
        let mut state = State { sum: acc, parts: [acc; BM * 2] };
        let late;
        'outer: for k in range(0, K, 64) {
            acc += x.tile([m, k], [BM, 64]).mask(|r, mut c| j + c < n && r != 1, -1.0);
            state.parts[0].sum *= 2.0 - -x;
            update(&mut state, &acc);
            (acc, state.sum) = pair(acc);
            if a < b { acc <<= 1; continue; } else if let Some(k) = k { return } else { break 'outer; }
        }
        while !done { loop { n -= 1; } }
        let value = if 0 < m { match n { 0 | 1 => x?, mut other if other > 2 => unsafe { y } } } else { 1.5e3 };
        let Some(found) = value as f32 else { panic!("{x}") };
        let shown: &dyn Fn(u8) -> [f32; N + 1] = &async move |x| x.await;
        const { 1 + 2 };
        fn inner() {}
        y.store([m, 0], acc[..1] >> (1 + BM) | 3 ^ 4 % 5 & !6);
        { acc }
    }
"#;

const STRUCT: &str = "#[derive(Carry)] pub struct State<'a, T: Elem, const N: usize> where T: Copy \
    { pub sum: Tile<T>, parts: [Tile<f32>; N], rest: &'a (Tile<T>, Other) }";

/// xorshift64: the same numbers in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).expect("31 bits") % n.max(1)
    }
}

fn tokens(text: &str) -> TokenStream {
    text.parse().expect("tokens of Rust")
}

/// All groups and tokens inside, for putting elsewhere.
fn vocabulary(stream: TokenStream, words: &mut Vec<TokenTree>) {
    for token in stream {
        if let TokenTree::Group(group) = &token {
            vocabulary(group.stream(), words);
        }
        words.push(token);
    }
}

fn mutate(stream: TokenStream, words: &[TokenTree], random: &mut Random) -> TokenStream {
    let mut list: Vec<TokenTree> = stream.into_iter().collect();
    let at = random.below(list.len());
    // Most of the time inside a group, because most of a kernel is.
    if let Some(TokenTree::Group(group)) = list.get(at)
        && random.below(8) != 0
    {
        let inside = mutate(group.stream(), words, random);
        let delimiter = match random.below(40) {
            0 => Delimiter::Parenthesis,
            1 => Delimiter::Brace,
            2 => Delimiter::Bracket,
            3 => Delimiter::None,
            _ => group.delimiter(),
        };
        list[at] = TokenTree::Group(Group::new(delimiter, inside));
        return list.into_iter().collect();
    }
    let word = words[random.below(words.len())].clone();
    match random.below(5) {
        _ if list.is_empty() => list.push(word),
        0 => drop(list.remove(at)),
        1 => list.insert(at, list[at].clone()),
        2 => {
            let other = random.below(list.len());
            list.swap(at, other);
        }
        3 => list[at] = word,
        _ => list.insert(at, word),
    }
    list.into_iter().collect()
}

/// What comes out is always a file of Rust.
fn check(output: &TokenStream, input: &TokenStream) {
    let parsed = syn::parse2::<syn::File>(output.clone());
    assert!(parsed.is_ok(), "{:?}\n{input}\n=>\n{output}", parsed.err());
}

fn mutated(text: &str, words: &[TokenTree], random: &mut Random) -> TokenStream {
    let mut stream = tokens(text);
    for _ in 0..random.below(4) {
        stream = mutate(stream, words, random);
    }
    stream
}

#[test]
fn no_input_makes_a_macro_panic() {
    let mut words = Vec::new();
    for text in [SETTINGS, KERNEL, STRUCT] {
        vocabulary(tokens(text), &mut words);
    }
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for _ in 0..ROUNDS {
        let settings = mutated(SETTINGS, &words, &mut random);
        let kernel = mutated(KERNEL, &words, &mut random);
        let state = mutated(STRUCT, &words, &mut random);
        check(&expand::kernel(settings.clone(), kernel.clone()), &kernel);
        check(&expand::tile_fn(TokenStream::new(), kernel.clone()), &kernel);
        check(&expand::carry(state.clone()), &state);
    }
}

#[test]
fn valid_statements_survive_mutation_of_one_alone() {
    let statements = [
        "acc += x.tile([m, k], [BM, 64]).sum(1);",
        "for i in 0..4 { acc = acc * 2.0; if i == 1 { n += 1; } }",
        "let v = if a < b { acc } else if c && d { x } else { y };",
        "state.parts[i].sum -= f(&mut acc, |r, c| r + c < n);",
    ];
    let mut words = Vec::new();
    statements.iter().for_each(|text| vocabulary(tokens(text), &mut words));
    let mut random = Random(7);
    for round in 0..ROUNDS {
        let head = "fn f(mut acc: Tile<f32>, state: &mut State) { let mut n = 0; ";
        let body = mutated(statements[round % statements.len()], &words, &mut random);
        let Ok(function) = format!("{head} {body} }}").parse::<TokenStream>() else {
            continue;
        };
        check(&expand::tile_fn(TokenStream::new(), function.clone()), &function);
    }
}
