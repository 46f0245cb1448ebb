//! Every tensor type that a GGUF file can name: block length in weights and in bytes.
//! The sizes of types that we cannot compute with are known too, so that such a file is checked and its types can be shown.

/// The number that stands for a tensor's type in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TensorType(pub u32);

/// (number, name, weights per block, bytes per block)
const TYPES: &[(u32, &str, u64, u64)] = &[
    (0, "F32", 1, 4),
    (1, "F16", 1, 2),
    (2, "Q4_0", 32, 18),
    (3, "Q4_1", 32, 20),
    (6, "Q5_0", 32, 22),
    (7, "Q5_1", 32, 24),
    (8, "Q8_0", 32, 34),
    (9, "Q8_1", 32, 36),
    (10, "Q2_K", 256, 84),
    (11, "Q3_K", 256, 110),
    (12, "Q4_K", 256, 144),
    (13, "Q5_K", 256, 176),
    (14, "Q6_K", 256, 210),
    (15, "Q8_K", 256, 292),
    (16, "IQ2_XXS", 256, 66),
    (17, "IQ2_XS", 256, 74),
    (18, "IQ3_XXS", 256, 98),
    (19, "IQ1_S", 256, 50),
    (20, "IQ4_NL", 32, 18),
    (21, "IQ3_S", 256, 110),
    (22, "IQ2_S", 256, 82),
    (23, "IQ4_XS", 256, 136),
    (24, "I8", 1, 1),
    (25, "I16", 1, 2),
    (26, "I32", 1, 4),
    (27, "I64", 1, 8),
    (28, "F64", 1, 8),
    (29, "IQ1_M", 256, 56),
    (30, "BF16", 1, 2),
    (34, "TQ1_0", 256, 54),
    (35, "TQ2_0", 256, 66),
    (39, "MXFP4", 32, 17),
    (40, "NVFP4", 64, 36),
    (41, "Q1_0", 128, 18),
];

/// Types that ggml once had and took out; files with them are still passed around.
const REMOVED: &[(u32, &str)] = &[
    (4, "Q4_2"),
    (5, "Q4_3"),
    (31, "Q4_0_4_4"),
    (32, "Q4_0_4_8"),
    (33, "Q4_0_8_8"),
    (36, "IQ4_NL_4_4"),
    (37, "IQ4_NL_4_8"),
    (38, "IQ4_NL_8_8"),
];

impl TensorType {
    fn row(self) -> Option<&'static (u32, &'static str, u64, u64)> {
        TYPES.iter().find(|row| row.0 == self.0)
    }

    pub fn name(self) -> &'static str {
        self.row().map_or("unknown", |row| row.1)
    }

    /// (weights, bytes) of one block; None for a number that no known type has.
    pub fn block(self) -> Option<(u64, u64)> {
        self.row().map(|row| (row.2, row.3))
    }

    /// The name of a type that was removed from the format.
    pub fn removed(self) -> Option<&'static str> {
        REMOVED.iter().find(|row| row.0 == self.0).map(|row| row.1)
    }

    pub fn from_name(name: &str) -> Option<TensorType> {
        TYPES.iter().find(|row| row.1 == name).map(|row| TensorType(row.0))
    }
}
